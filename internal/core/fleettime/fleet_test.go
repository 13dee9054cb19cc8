package fleettime

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTimesBeforeTheEpochLieInTheSecondThatHoldsThem(t *testing.T) {
	for _, c := range []struct {
		t      Time
		second int64
		minute Time
		text   string
	}{
		{0, 0, 0, "1970-01-01T00:00:00.000Z"},
		{999, 0, 0, "1970-01-01T00:00:00.999Z"},
		{1000, 1, 0, "1970-01-01T00:00:01.000Z"},
		{59_999, 59, 0, "1970-01-01T00:00:59.999Z"},
		{60_000, 60, 60_000, "1970-01-01T00:01:00.000Z"},
		{-1, -1, -60_000, "1969-12-31T23:59:59.999Z"},
		{-1000, -1, -60_000, "1969-12-31T23:59:59.000Z"},
		{-1001, -2, -60_000, "1969-12-31T23:59:58.999Z"},
		{-60_000, -60, -60_000, "1969-12-31T23:59:00.000Z"},
		{-60_001, -61, -120_000, "1969-12-31T23:58:59.999Z"},
		{1622133200_123, 1622133200, 1622133180_000, "2021-05-27T16:33:20.123Z"},
	} {
		if got := c.t.Second(); got != c.second {
			t.Errorf("second of %d ms is %d, want %d", int64(c.t), got, c.second)
		}
		if got := c.t.Minute(); got != c.minute {
			t.Errorf("minute of %d ms is %d, want %d", int64(c.t), int64(got), int64(c.minute))
		}
		if got := c.t.String(); got != c.text {
			t.Errorf("%d ms reads %s, want %s", int64(c.t), got, c.text)
		}
		if got := TimeOf(c.t.Std()); got != c.t {
			t.Errorf("%d ms came back from time.Time as %d", int64(c.t), int64(got))
		}
	}
}

func TestTimeAndMonoAreMovedByDurations(t *testing.T) {
	if got := Time(1000).Add(1500*time.Millisecond + 999*time.Microsecond); got != 2500 {
		t.Errorf("added to fleet time: %d, want whole milliseconds only", int64(got))
	}
	if got := Time(1000).Add(-1500 * time.Millisecond); got != -500 {
		t.Errorf("taken from fleet time: %d", int64(got))
	}
	if got := Time(-500).Sub(1000); got != -1500*time.Millisecond {
		t.Errorf("fleet times differ by %v", got)
	}
	if got := Mono(5).Add(time.Second).Sub(5); got != time.Second {
		t.Errorf("readings differ by %v", got)
	}
	if Mono(0).Add(200*365*24*time.Hour) >= Never {
		t.Error("a deadline in this life is not before never")
	}
}

// TestTheHolderGivesUpALeaseBeforeTheLenderTakesItBack measures one lease on two clocks at the drift limit.
func TestTheHolderGivesUpALeaseBeforeTheLenderTakesItBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lease := time.Duration(rapid.Int64Range(int64(10*time.Millisecond), int64(24*time.Hour)).Draw(t, "lease"))
		apart := rapid.Float64Range(-Drift, Drift).Draw(t, "drift of the lender against the holder")
		// The holder measures from sending, the lender from receiving: later.
		way := rapid.Int64Range(0, int64(time.Second)).Draw(t, "way")

		holderEnds := float64(Shrink(lease)) * (1 + apart) // on the lender's clock
		for name, lenderEnds := range map[string]float64{
			"a lease that the holder shortens":  float64(way) + float64(lease),
			"a lease that both keep apart":      float64(way) + float64(Stretch(lease)),
			"a wait that only the lender knows": float64(way) + float64(Stretch(Shrink(lease)))*(1+1e-6) + 2,
		} {
			if holderEnds >= lenderEnds {
				t.Fatalf("%s: the holder of %v believes it for %v, the lender for %v", name, lease, time.Duration(holderEnds),
					time.Duration(lenderEnds))
			}
		}
		if float64(lease)*(1+apart) >= float64(Stretch(lease)) {
			t.Fatalf("a lender who waits %v for %v is early", Stretch(lease), lease)
		}
	})
}
