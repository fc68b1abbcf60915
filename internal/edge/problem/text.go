package problem

import (
	"unicode/utf8"
)

const hex = "0123456789abcdef"

// AppendString appends s as a JSON string in printable ASCII. What is not UTF-8 becomes U+FFFD; the characters that
// HTML gives a meaning are escaped too.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf-1 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r > 0xffff:
			r -= 0x10000
			b = escape(escape(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			b = escape(b, r)
		}
		i += size
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

func escape(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
