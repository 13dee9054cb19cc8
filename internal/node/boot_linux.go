package node

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// bootID returns the kernel's boot ID, or "" if unknown.
func bootID() string { return firstLine("/proc/sys/kernel/random/boot_id") }

// sinceBoot returns the time since boot, including suspend.
func sinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("time since boot: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
