//go:build !linux

package node

import (
	"errors"
	"time"
)

// bootID returns "": nothing here tells one start of the machine from another.
func bootID() string { return "" }

func sinceBoot() (time.Duration, error) {
	return 0, errors.New("the time since boot is not known on this system")
}
