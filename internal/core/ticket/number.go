package ticket

// AppendNumber appends the reference number of the ticket with this id, such as 482-177-301: a visitor can read it to
// support over the telephone, in every language. It is the last nine decimal digits of the id. It is no secret, and
// claims no place: that takes the sealed ticket. Of a million visitors one in a thousand shares it with another.
func AppendNumber(dst []byte, id uint64) []byte {
	n := id % 1_000_000_000
	for unit, i := uint64(100_000_000), 0; i < 9; unit, i = unit/10, i+1 {
		if i == 3 || i == 6 {
			dst = append(dst, '-')
		}
		dst = append(dst, byte('0'+n/unit%10))
	}
	return dst
}
