"""The catalogue: a dataset's entry as RDF, the rules it is checked by, the triple store, and which form a reader gets.

rdflib and pySHACL are imported by the modules that need them only, so that ``negotiation`` and ``store`` start fast.
"""
