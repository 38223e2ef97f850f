"""The live hosts of every product: tree, atoms, peers, overlay. The machines of protocols/, on real wires."""
