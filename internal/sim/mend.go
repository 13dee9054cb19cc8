package sim

// calmDown ends everything that goes wrong.
func (w *World) calmDown() { w.calm = true }
