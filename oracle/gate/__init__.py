"""The gate: runs and a policy -> one line and an exit code. What was not judged never passes.

policy      what a policy file demands, and the waivers that it grants
evidence    a run directory -> a verdict that the gate made itself, or why there is none
threshold   a verdict held against the thresholds of a policy: what falls short
waiver      what falls short held against the waivers
rules       a tolerance or policy file as flat values: what was loosened, what was tightened
acknowledge who has seen which rules, and what changed since
judgement   all of it together; line, record and explain show it
"""
