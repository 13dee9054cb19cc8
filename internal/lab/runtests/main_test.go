package main

import (
	"strings"
	"testing"

	"vestibule/internal/lab/testkit"
)

// The output of tests that pass is not printed, that of others is; each package has a line, and each test a time.
func TestOnlyFailuresArePrinted(t *testing.T) {
	const of = `{"Action":"output","Package":"p","Test":"TestA","Output":"a says\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"b says\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}
{"Action":"fail","Package":"p","Test":"TestB/part","Elapsed":1}
{"Action":"fail","Package":"p","Test":"TestB","Elapsed":20}
{"Action":"output","Package":"p","Output":"FAIL\tp\t21.5s\n"}
{"Action":"fail","Package":"p","Elapsed":21.5}
{"ImportPath":"q","Action":"build-output","Output":"q.go:1: undefined\n"}
{"ImportPath":"q","Action":"build-fail"}
{"Action":"output","Package":"r","Output":"panic: r\n"}
{"Action":"fail","Package":"r","Elapsed":1}
{"Action":"output","Package":"s","Output":"PASS\n"}
{"Action":"output","Package":"s","Output":"ok  \ts\t0.1s\n"}
{"Action":"pass","Package":"s","Elapsed":0.1}
go: a line of the go command
`
	var out strings.Builder
	o := outcome{out: &out, output: map[string][]string{}}
	testkit.NoError(t, o.read(strings.NewReader(of)))
	want := "b says\nFAIL\tp\t21.5s\nq.go:1: undefined\npanic: r\nok  \ts\t0.1s\ngo: a line of the go command\n"
	if out.String() != want {
		t.Errorf("printed:\n%swant:\n%s", out.String(), want)
	}
	if got := o.times.String(); got != "1.50 p TestA\n20.00 p TestB\n" {
		t.Errorf("times:\n%s", got)
	}
}

// A skipped test is a failure with its reason, unless another command runs it.
func TestASkipIsAFailure(t *testing.T) {
	const of = `{"Action":"output","Package":"p","Test":"TestA","Output":"curl is not installed\n"}
{"Action":"skip","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestB","Output":"\u0060make siege\u0060 runs it\n"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"skip","Package":"q","Elapsed":0}
`
	var out strings.Builder
	o := outcome{out: &out, output: map[string][]string{}}
	testkit.NoError(t, o.read(strings.NewReader(of)))
	if len(o.skipped) != 1 || o.skipped[0] != "p TestA" || out.String() != "curl is not installed\n" {
		t.Errorf("skipped %q, printed %q", o.skipped, out.String())
	}
}

func TestNoTestIsAnError(t *testing.T) {
	if err := run("", false, []string{"-vet=off", "-run", "^TestNotThere$", "."}); err == nil {
		t.Error("no error")
	}
}

func TestTheSlowestOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	a := testkit.WriteFile(t, dir, "a", "1.50 p TestA\n20.00 p TestB\n")
	b := testkit.WriteFile(t, dir, "b", "3.00 q TestC\n")
	var out strings.Builder
	testkit.NoError(t, printSlowest(&out, 2, []string{a, b}))
	if want := "   20.0 s  p TestB\n    3.0 s  q TestC\n"; out.String() != want {
		t.Errorf("printed:\n%swant:\n%s", out.String(), want)
	}
}
