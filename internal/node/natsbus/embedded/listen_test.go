package embedded

import (
	"os"
	"path/filepath"
	"testing"

	"vestibule/internal/lab/testkit"
)

// TestBeyondLoopback: addresses that other machines can reach are reported.
func TestBeyondLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"": false, "127.0.0.1:4222": false, "[::1]:4222": false, "localhost:4222": false, "127.8.0.1:0": false,
		":4222": true, "0.0.0.0:4222": true, "[::]:4222": true, "10.0.0.1:4222": true, "nats.internal:4222": true,
	} {
		if got := beyondLoopback(addr); got != want {
			t.Errorf("%q: %v", addr, got)
		}
	}
}

// TestPassword: a new server that other machines reach asks for a password, which it goes on asking
// for. One that nodes without a password may use already does when an operator gives it the file.
func TestPassword(t *testing.T) {
	write := func(t *testing.T, dir, text string) {
		t.Helper()
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, passwordFile), []byte(text), 0o600))
	}
	const mine = "correct-horse-battery-staple"
	for name, tc := range map[string]struct {
		stored, beyond bool
		file           string
		want           string // "new" for a generated one
		fault          bool
	}{
		"new, beyond this machine":             {beyond: true, want: "new"},
		"new, on this machine":                 {},
		"used already":                         {stored: true, beyond: true, want: "new"},
		"used already, with a file":            {stored: true, beyond: true, file: mine + "\n", want: mine},
		"on this machine, with a file":         {file: mine, want: mine},
		"a file that is too short":             {stored: true, beyond: true, file: "secret", fault: true},
		"an empty file":                        {beyond: true, file: "\n", fault: true},
		"a file that is no part of an address": {beyond: true, file: mine + "@/:", fault: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if tc.stored {
				testkit.NoError(t, os.MkdirAll(filepath.Join(dir, Store), 0o700))
			}
			if tc.file != "" {
				testkit.NoError(t, os.MkdirAll(dir, 0o700))
				write(t, dir, tc.file)
			}
			got, err := password(dir, tc.beyond)
			if (err != nil) != tc.fault {
				t.Fatal(err)
			}
			if tc.want != "new" {
				if got != tc.want {
					t.Errorf("%q, want %q", got, tc.want)
				}
				return
			}
			if len(got) < minPassword {
				t.Errorf("made %q", got)
			}
			testkit.NoError(t, os.MkdirAll(filepath.Join(dir, Store), 0o700))
			if again, err := password(dir, tc.beyond); again != got || err != nil {
				t.Errorf("%q, after the next start %q, %v", got, again, err)
			}
			info, err := os.Stat(filepath.Join(dir, passwordFile))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("others may read it: %v, %v", info.Mode(), err)
			}
		})
	}
}
