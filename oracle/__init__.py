"""The oracle: aligns what two training stacks did and gives a verdict.

It imports no training framework and no stack.
"""
