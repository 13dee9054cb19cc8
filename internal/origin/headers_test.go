package origin

import (
	"net/http"
	"testing"
)

// The tables are looked up as net/http spells names.
func TestTheTablesOfHeadersAreCanonical(t *testing.T) {
	rules := NewHeaderRules(nil)
	for _, table := range [][]string{pathHeaders, methodHeaders, hostHeaders, schemeHeaders, addressHeaders, edgeHeaders} {
		for _, name := range table {
			if http.CanonicalHeaderKey(name) != name {
				t.Errorf("%s is spelled %s", name, http.CanonicalHeaderKey(name))
			}
		}
	}
	for name := range rules.out {
		if hasFamily(name, headerFamilies) {
			t.Errorf("%s is of a family already", name)
		}
	}
}
