package node

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// bootID returns what tells this start of the machine's kernel from others; "" where that is not known.
func bootID() string { return firstLine("/proc/sys/kernel/random/boot_id") }

// sinceBoot returns the time since the machine's kernel was started, suspended time included.
func sinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("time since boot: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
