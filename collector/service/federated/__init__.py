"""`ldp-collector federated-demo`: one model learned from many devices in real rounds, privately in two ways.

data.py makes what the devices hold, lines.py the two private lines and their plan, fleet.py the devices, run.py the
rounds, judging.py the verdict, show.py the tables.
"""
