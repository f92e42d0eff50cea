"""Leaseway: publishes datasets; a job is being worked on, recovered, or finished."""
