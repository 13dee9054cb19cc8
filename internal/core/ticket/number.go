package ticket

import (
	"fmt"
	"strconv"
	"strings"
)

// numbers is how many reference numbers there are.
const numbers = 1_000_000_000

// ParseNumber reads a reference number as a visitor tells it, also without the signs between its digits.
func ParseNumber(text string) (number uint64, err error) {
	digits := strings.NewReplacer("-", "", " ", "").Replace(text)
	if number, err = strconv.ParseUint(digits, 10, 64); err != nil || len(digits) != 9 {
		return 0, fmt.Errorf("must be nine digits such as 482-177-301, got %q", text)
	}
	return number, nil
}

// HasNumber reports whether the ticket with this ID has a reference number.
func HasNumber(id, number uint64) bool { return id%numbers == number }

// AppendNumber appends the reference number of the ticket with this id, such as 482-177-301: a visitor can read it to
// support over the telephone, in every language. It is the last nine decimal digits of the id. It is no secret, and
// claims no place: that takes the sealed ticket. Of a million visitors one in a thousand shares it with another.
func AppendNumber(dst []byte, id uint64) []byte {
	n := id % numbers
	for unit, i := uint64(100_000_000), 0; i < 9; unit, i = unit/10, i+1 {
		if i == 3 || i == 6 {
			dst = append(dst, '-')
		}
		dst = append(dst, byte('0'+n/unit%10))
	}
	return dst
}
