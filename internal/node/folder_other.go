//go:build !unix || solaris || illumos || aix

package node

import (
	"os"

	"vestibule/internal/core/fleettime"
)

// lockPlace cannot lock on this system, so a folder proves nothing.
func lockPlace(*os.File) (fleettime.Place, error) { return fleettime.Place{}, nil }
