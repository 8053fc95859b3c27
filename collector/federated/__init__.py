"""Federated averaging at client level: many devices improve one model, and the collector sees sums of clipped updates.

clipping.py moves the norm that updates are clipped to, averaging.py makes the next model of a round's sums, cost.py
says what the rounds cost each device. A round is a period of a plan with two metrics of kind `vector`: the update, of
dimension d and clip 1, and whether it fitted, of dimension 1 and clip 1/2 (`averaging.Task`).

Rules of this package: a plan is immutable, so the clipping norm C is not its clip. Devices divide their update by C,
which is public, and the plan clips what comes to 1: sensitivity and noise are the plan's and never move, whatever C is.
C is worked out from released sums alone. Everything that leaves a device is in the plan, perturbed and masked there.
What it does not do: carry a model to a device (the host app fetches it, as it fetches everything else), train, or check
that a device has trained: see the README for what a false one can do.
Sources: McMahan, Ramage, Talwar & Zhang, "Learning Differentially Private Recurrent Language Models" (ICLR 2018);
Andrew, Thakkar, McMahan & Ramaswamy, "Differentially Private Learning with Adaptive Clipping" (NeurIPS 2021).
"""
