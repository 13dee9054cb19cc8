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

// changeTime returns the time at which the kernel last changed a file, its name or its attributes.
func changeTime(name string) (time.Time, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", name, err)
	}
	return time.Unix(st.Ctim.Unix()), nil
}
