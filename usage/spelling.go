package usage

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckAccount says what keeps a text from being an account's id, or nil. There is this one rule wherever an id comes
// from, so that no customer has two accounts by a spelling that one place takes and another refuses: 1 to MaxAccountBytes
// bytes of UTF-8 that no header, line or page can be split by, without blanks at the ends. Ids are compared byte for byte:
// case and Unicode's other ways to write a letter make other accounts.
func CheckAccount(id string) error {
	switch {
	case id == "":
		return errors.New("the account id is blank")
	case len(id) > MaxAccountBytes:
		return fmt.Errorf("the account id has %d bytes, at most %d are allowed", len(id), MaxAccountBytes)
	case !utf8.ValidString(id):
		return errors.New("the account id is not valid UTF-8")
	case strings.ContainsFunc(id, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }):
		return errors.New("the account id has a control character or a line break in it")
	case strings.TrimSpace(id) == "":
		return errors.New("the account id is blank")
	case strings.TrimSpace(id) != id:
		return errors.New("the account id has a blank at one of its ends")
	}
	return nil
}
