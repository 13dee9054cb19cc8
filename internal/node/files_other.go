//go:build !unix

package node

// MaxFiles returns the limit of open files, which is unknown on this system.
func MaxFiles() (int, error) { return 1 << 20, nil }
