"""What the text of paper 4 reports: S. Sun et al., LightningDOT, NAACL 2021. Its tables are not at hand.

All are mean recalls (mR, which the paper calls AR), on Flickr30k.
"""

CMR_ALONE = 1.4
"""How much higher it is with CMR as the only task of pre-training than without any (Table 5)."""
GALLERIES = {"test": 89.3, "full": 70.2}
"""By gallery: the 1,000 test pictures by themselves (Table 1), and among all 31,000 (Table 2)."""
