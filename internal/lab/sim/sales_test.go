package sim

import "testing"

// TestForecastsInASale: forecasts at joining a sale are close to the wait. The figures over many sales are in
// "vestibule simulate figures".
func TestForecastsInASale(t *testing.T) {
	t.Parallel()
	s := sellOut(8)
	if s.result.Fault != "" {
		t.Fatal(s.result.Fault)
	}
	if n := len(s.outcomes); n < 500 || s.result.Forecast > 0.15 {
		t.Errorf("%s: the forecasts of %d people were off by %.3f in the middle", s.name, n, s.result.Forecast)
	}
}
