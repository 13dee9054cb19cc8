//go:build !linux

package node

import (
	"errors"
	"time"
)

// bootID returns "": this system has no boot ID.
func bootID() string { return "" }

func sinceBoot() (time.Duration, error) {
	return 0, errors.New("the time since boot is not known on this system")
}

// changeTime returns the time at which the kernel last changed a file: unknown on this system.
func changeTime(string) (time.Time, error) {
	return time.Time{}, errors.New("change times of files are read on Linux only")
}
