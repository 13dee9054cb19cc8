package sim

import "testing"

func TestRun(t *testing.T) {
	cfg := Defaults()
	r := New(cfg).Run()
	t.Log("\n" + r.Table())
	t.Log(r.Reasons)
	if r.Fault != "" {
		t.Fatal(r.Fault)
	}
}
