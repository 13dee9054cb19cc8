package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
)

// The script of the built-in page is a file of its own, since servers in front block scripts within pages by a policy,
// or change them. Its address names protocol and content:
//
//	/.well-known/vestibule/page.1.0123456789ab.js
//
// An edge of another version than that of the page has another content. It answers with its own script of the same
// protocol, which browsers must not keep for the address.

// protocol is the version of what page.html and page.js agree about: elements, data and words. Whoever changes it keeps
// min/page.js of the protocol before as min/page.N.js, for pages of edges that are not replaced yet.
const protocol = 1

// The scripts of this protocol and of the one before, minified by `make scripts`.
//
//go:embed min/page*.js
var scriptFiles embed.FS

// scriptStem begins the addresses of scripts.
const scriptStem = "/.well-known/vestibule/page."

// Script is a script of the built-in page.
type Script struct {
	Text string
	Gzip func() []byte // Text, compressed on first use
	sum  string        // of Text, as in the address
}

var scripts = readScripts(scriptFiles, protocol)

// readScripts returns the scripts by protocol.
func readScripts(files fs.FS, newest int) map[int]*Script {
	out := map[int]*Script{}
	for n, name := range map[int]string{newest: "min/page.js", newest - 1: fmt.Sprintf("min/page.%d.js", newest-1)} {
		text, err := fs.ReadFile(files, name)
		if err != nil && n == newest {
			panic("waiting page: " + err.Error()) // it is embedded
		} else if err != nil {
			continue // there was none before
		}
		s := &Script{Text: strings.Replace(string(text), "{{fields}}", nowFields(), 1)}
		sum := sha256.Sum256([]byte(s.Text))
		s.sum = hex.EncodeToString(sum[:6])
		s.Gzip = sync.OnceValue(func() []byte {
			var out Packer
			return out.end(nil, out.text(out.begin(newPack([]string{s.Text}, nil)), 0))
		})
		out[n] = s
	}
	return out
}

// ScriptPath returns the address of the script of the built-in page.
func ScriptPath() string {
	return scriptStem + strconv.Itoa(protocol) + "." + scripts[protocol].sum + ".js"
}

// IsScript reports whether a path is the address of a script of a built-in page, of any version.
func IsScript(path string) bool {
	return strings.HasPrefix(path, scriptStem) && strings.HasSuffix(path, ".js")
}

// ScriptAt returns the script for an address, nil for an unknown protocol. exact reports whether it is the content that
// the address names.
func ScriptAt(path string) (s *Script, exact bool) {
	name := strings.TrimSuffix(strings.TrimPrefix(path, scriptStem), ".js")
	number, sum, _ := strings.Cut(name, ".")
	n, err := strconv.Atoi(number)
	if err != nil || scripts[n] == nil {
		return nil, false
	}
	return scripts[n], sum == scripts[n].sum
}

// Again returns the address with which a page at a target asks for itself: relative, since a server in front may know it
// under another path, and without a fragment. Browsers do not leave a page for an address that differs in its fragment
// only, and a refresh without an address keeps it. "" is for a target that cannot be shown in a page.
func Again(target string) string {
	if len(target) > 2048 || strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return ""
	}
	path, query, found := strings.Cut(target, "?")
	path = "./" + path[strings.LastIndexByte(path, '/')+1:]
	if found {
		path += "?" + query
	}
	return path
}
