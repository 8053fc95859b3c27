"""`ldp-collector demo`: registrar, collector and a fleet of real devices on loopback, checked against the truth.

fleet.py makes (or reads) what the devices measure, run.py starts both services and lets the devices upload,
result.py compares what was released with what the contributors really held, show.py prints it.
"""
