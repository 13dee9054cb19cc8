package testkit

// test is a [testing.TB], also that of a property.
type test interface {
	Helper()
	Fatal(...any)
}

// Must returns the value of a call on which the test depends. An error ends the test at once:
//
//	data := testkit.Must(os.ReadFile(name))(t)
func Must[T any](v T, err error) func(test) T {
	return func(t test) T {
		if err != nil { // Helper walks the stack, and benchmarks check errors in their loops
			t.Helper()
			NoError(t, err)
		}
		return v
	}
}

// NoError ends the test at once if err is not nil.
func NoError(t test, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
