"""Whether the machinery runs: for load balancers, monitors, and the operator's first look."""

from chalice.app import Response

from chalicelib.db import DatabaseAway

from .documents import health_document
from .routing import Api, Call, answer


def register(api: Api) -> None:
    """GET /health."""

    @api.route("/health", "GET", "HEAD", role=None, answers=(200, 503), gives="Health")
    def get_health(call: Call) -> Response:
        """503 with the reason when a scheduled function hasn't finished for five minutes or a job is past its bound."""
        try:
            health = call.engine.health()
        except DatabaseAway:
            away = {"ok": False, "reasons": ["Leaseway's own database doesn't answer."]}
            return answer(away, 503, cache_control="no-store", retry_after="5")
        return answer(health_document(health), 200 if health.ok else 503, cache_control="no-store")
