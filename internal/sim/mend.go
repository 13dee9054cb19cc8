package sim

type mending struct{}

func (w *World) calmDown() {}
