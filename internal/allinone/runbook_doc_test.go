package allinone

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vestibule/internal/lab/testkit"
)

// TestRunbookDocument: every alarm and log message of docs/RUNBOOK.md is in the code, word for word.
func TestRunbookDocument(t *testing.T) {
	doc := testkit.Must(os.ReadFile("../../docs/RUNBOOK.md"))(t)
	var code strings.Builder
	for _, tier := range []string{"../edge", "../regional", "../global", "../node", "../core/stop", "../notify"} {
		err := filepath.WalkDir(tier, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		testkit.NoError(t, err)
	}
	alarms := regexp.MustCompile("(?m)^### `(.+)`$").FindAllStringSubmatch(string(doc), -1)
	_, logs, _ := strings.Cut(string(doc), "\n## Log messages\n")
	logs, _, _ = strings.Cut(logs, "\n## ")
	messages := regexp.MustCompile("(?m)^\\| `(.+?)` \\|").FindAllStringSubmatch(logs, -1)
	if len(alarms) < 20 || len(messages) < 10 {
		t.Fatalf("%d alarms and %d log messages: the document has changed its form", len(alarms), len(messages))
	}
	for _, m := range append(alarms, messages...) {
		if !strings.Contains(code.String(), m[1]) {
			t.Errorf("no node says %q", m[1])
		}
	}
}
