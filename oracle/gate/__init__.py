"""The gate: runs and a policy -> one line and an exit code. What was not judged never passes.

policy      what a policy file demands, and the waivers that it grants; refusal: what none can mean
search      the runs that it looks at
evidence    a run directory -> a verdict that the gate made itself, or why there is none
threshold   a verdict held against the thresholds of a policy: what falls short
waiver      what falls short held against the waivers
rules       a tolerance or policy file as flat values: what was loosened, what was tightened
acknowledge who has seen which rules, and what changed since; history: what this change touches
judgement   all of it together; line, record and explain show it
floor_key   the name under which CI keeps a noise floor
"""
