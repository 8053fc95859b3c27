"""The engines of report jobs: DuckDB on one machine, Apache Spark on a cluster, and plain Python where neither is.

    expressions.py, ledger.py   the grouped sums, written once, as Ibis expressions over an export's tables
    on_duckdb.py, on_spark.py   where they run: what a table is, and how its rows come back
    arrow.py, spending.py       rows back to values: integers of any size, whoever added them up
    exported.py                 an export as `report` and `privacy` ask it, in place of the store

Rules: engines add up integers and count, nothing else; decoding and every float are Python's, after that, so the
numbers are the same to the last bit whichever engine ran. A sum that does not fit is an error, never another number.
"""
