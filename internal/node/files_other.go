//go:build !unix

package node

// MaxFiles returns how many files this process may have open; here nobody tells.
func MaxFiles() (int, error) { return 1 << 20, nil }
