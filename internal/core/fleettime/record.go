package fleettime

import (
	"errors"
	"fmt"
	"time"
)

// Record is a stored reading of fleet time for the next process with the same data folder. It is valid until the
// machine reboots.
type Record struct {
	Boot  string        `json:"boot"`  // boot ID of the machine's kernel
	At    time.Duration `json:"at"`    // since boot, including suspend
	Wall  Time          `json:"wall"`  // the machine's clock at that reading
	Time  Time          `json:"time"`  // fleet time at that reading
	Bound time.Duration `json:"bound"` // uncertainty of Time
	// Time is the clock of a coordinator's machine, for lack of a better source
	Guess bool `json:"guess,omitempty"`
}

// Known is a reading of fleet time with its uncertainty. The zero value is unknown.
type Known struct {
	Time  Time
	Bound time.Duration
	Guess bool // it is the clock of a coordinator's machine, for lack of a better source
}

// OK reports whether the time is certain enough to use.
func (k Known) OK() bool { return k.Time > 0 && k.Bound <= Rough }

// wallStep is how far the machine's clock may run ahead of the time since boot before the machine counts as
// suspended unnoticed, like a virtual machine stopped from outside. wallSlew is the fraction by which a time daemon
// slews it.
const (
	wallStep = 500 * time.Millisecond
	wallSlew = 1e-3
)

// maxRecorded bounds the age of a record: after it the bound would exceed Rough.
const maxRecorded = 24 * time.Hour

// Read returns fleet time at the time at since the machine's boot; wall is the machine's clock. It returns an error
// if the record is not usable.
func (r *Record) Read(boot string, at time.Duration, wall Time) (Known, error) {
	age := at - r.At
	switch {
	case boot == "" || r.Boot != boot:
		return Known{}, errors.New("the machine was restarted since, or its boot time is unknown")
	case r.Time <= 0 || r.Bound < 0 || r.Bound > Rough:
		return Known{}, fmt.Errorf("it is damaged: time %d, bound %v", r.Time, r.Bound)
	case age < 0:
		return Known{}, fmt.Errorf("it was written %v from now", -age)
	case age > maxRecorded:
		return Known{}, fmt.Errorf("it is %v old", age)
	}
	if ahead := wall.Sub(r.Wall) - age; ahead > wallStep+time.Duration(float64(age)*wallSlew) {
		return Known{}, fmt.Errorf("the machine's clock ran ahead of its time since boot by %v: it stood still, or was set",
			ahead)
	}
	k := Known{
		Time: r.Time.Add(age), Bound: r.Bound + time.Duration(float64(age)*Drift/(1-Drift)) + rounding, Guess: r.Guess,
	}
	if k.Bound > Rough {
		return Known{}, fmt.Errorf("it is %v old: the time may be wrong by %v", age, k.Bound)
	}
	return k, nil
}
