package fleettime

import (
	"errors"
	"fmt"
	"time"
)

// Record is a reading of fleet time that a process stores in its data folder, and that the
// next process reads. It is of use for as long as the machine has not been started anew.
type Record struct {
	Boot  string        `json:"boot"`            // start of the machine's kernel
	At    time.Duration `json:"at"`              // since that start, suspended time included
	Wall  Time          `json:"wall"`            // the machine's clock at that moment
	Time  Time          `json:"time"`            // fleet time at that moment
	Bound time.Duration `json:"bound"`           // by how much Time may be wrong
	Guess bool          `json:"guess,omitempty"` // Time is the clock of a coordinator's machine: nobody knew better
}

// Known is fleet time as a process knows it at a moment. The zero value is not known.
type Known struct {
	Time  Time
	Bound time.Duration
	Guess bool // it is the clock of a coordinator's machine: nobody knew better
}

// OK reports whether the time is known well enough to go by it.
func (k Known) OK() bool { return k.Time > 0 && k.Bound <= Rough }

// wallStep is by how much the machine's clock may run ahead of the time since boot before
// the machine is taken to have stood still unnoticed, as a virtual machine does that is
// stopped from outside; and the fraction by which a time daemon slews it.
const (
	wallStep = 500 * time.Millisecond
	wallSlew = 1e-3
)

// maxRecorded bounds the age of a record: after it the bound would exceed Rough.
const maxRecorded = 24 * time.Hour

// Read returns what fleet time is at a moment of the machine's current start: at is the time since
// then and wall the machine's clock. It returns an error where the record does not tell.
func (r *Record) Read(boot string, at time.Duration, wall Time) (Known, error) {
	age := at - r.At
	switch {
	case boot == "" || r.Boot != boot:
		return Known{}, errors.New("the machine has been started since, or does not tell when it was")
	case r.Time <= 0 || r.Bound < 0 || r.Bound > Rough:
		return Known{}, fmt.Errorf("it is damaged: time %d, bound %v", r.Time, r.Bound)
	case age < 0:
		return Known{}, fmt.Errorf("it was written %v from now", -age)
	case age > maxRecorded:
		return Known{}, fmt.Errorf("it is %v old", age)
	}
	if ahead := wall.Sub(r.Wall) - age; ahead > wallStep+time.Duration(float64(age)*wallSlew) {
		return Known{}, fmt.Errorf("the machine's clock ran ahead of its time since boot by %v: it stood still, or was set", ahead)
	}
	k := Known{Time: r.Time.Add(age), Bound: r.Bound + time.Duration(float64(age)*Drift) + rounding, Guess: r.Guess}
	if k.Bound > Rough {
		return Known{}, fmt.Errorf("it is %v old: the time may be wrong by %v", age, k.Bound)
	}
	return k, nil
}
