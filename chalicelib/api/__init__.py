"""HTTP in and out: each route parses, calls and renders."""

from chalice.app import Chalice

from . import catalog, datasets, docs, files, health, internal, loads, publications, refreshes, schedules, withdrawals
from .routing import Api, Route


def register(app: Chalice) -> list[Route]:
    """Put every route on the app, and say which there are."""
    api = Api(app)
    for part in (
        catalog,
        datasets,
        files,
        publications,
        withdrawals,
        loads,
        refreshes,
        schedules,
        health,
        internal,
        docs,
    ):
        part.register(api)
    return api.routes
