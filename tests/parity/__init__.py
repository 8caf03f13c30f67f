"""
The Go service controller and ccm-lb, side by side.

The same scenarios are played to both, each on a genuine API server of its own and in front of a scripted cloud that answers both
alike; what they did and what they left is compared, and the end is held against what the Kubernetes API promises.
"""
