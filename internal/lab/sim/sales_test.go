package sim

import "testing"

// TestForecastsInASale: forecasts at joining a sale are close to the wait. The figures over many sales are in
// "vestibule simulate figures".
func TestForecastsInASale(t *testing.T) {
	t.Parallel()
	var f Finding
	name, those := sellOut(&f, 8)
	if f.Fault != "" || len(those.errs) < 500 || those.Error() > 0.15 {
		t.Errorf("%s: the forecasts of %d people were off by %.3f in the middle; %s", name, len(those.errs), those.Error(),
			f.Fault)
	}
}
