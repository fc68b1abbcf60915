package plans

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

const suggestBegin = "begin with currency, default_plan, features and plans"

// sourceText checks what can be said of the bytes before they are YAML.
func sourceText(data []byte) (string, *Problem) {
	if len(data) > maxFileBytes {
		return "", &Problem{
			Message:    "the file is larger than 1 MiB",
			Suggestion: fmt.Sprintf("a plan file holds at most %d plans", maxPlans),
		}
	}
	src := strings.TrimPrefix(string(data), "\ufeff")
	line, column := 1, 1
	for i, r := range src {
		_, size := utf8.DecodeRuneInString(src[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return "", &Problem{Line: line, Column: column, Message: "this is not UTF-8", Suggestion: "save the file as UTF-8"}
		case r == '\n':
			line, column = line+1, 0
		case r == '\r' && strings.HasPrefix(src[i+1:], "\n"):
		case isControl(r):
			return "", &Problem{
				Line: line, Column: column,
				Message:    fmt.Sprintf("the control character %U is not allowed in a plan file", r),
				Suggestion: "delete it",
			}
		}
		column++
	}
	return src, indentedByTab(src)
}

// indentedByTab finds the line that an editor indented with a tab, which YAML refuses less clearly.
func indentedByTab(src string) *Problem {
	line := 0
	for text := range strings.Lines(src) {
		line++
		rest := strings.TrimLeft(text, " \t")
		tab := strings.IndexByte(text[:len(text)-len(rest)], '\t')
		if tab >= 0 && strings.TrimSpace(rest) != "" && rest[0] != '#' {
			return &Problem{Line: line, Column: tab + 1, Message: "this line is indented with a tab", Suggestion: "indent with spaces"}
		}
	}
	return nil
}

// isControl names what an editor does not show, or would show as another line.
func isControl(r rune) bool {
	return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff'
}

// tokenize refuses, before anything recursive runs, what a plan file never needs.
func tokenize(src string) (token.Tokens, *Problem) {
	tokens := lexer.Tokenize(src)
	g := guard{}
	for _, tk := range tokens {
		if message, suggestion := g.refuse(tk); message != "" {
			return nil, &Problem{Line: tk.Position.Line, Column: tk.Position.Column, Message: message, Suggestion: suggestion}
		}
	}
	if !g.content {
		return nil, &Problem{Message: "the file is empty", Suggestion: suggestBegin}
	}
	return tokens, nil
}

// guard keeps what the checks of a stream of tokens need to remember.
type guard struct {
	content   bool
	documents int
	dashLine  int
	flow      []bool // open { and [; true for {
	entry     entry  // what the innermost one has had since its last comma
	bare      int
	columns   []siblings
}

// entry tells which parts of "key: value" have been seen.
type entry struct{ key, colon, value bool }

type siblings struct{ column, count int }

// refuse says what is wrong with the next token, or "".
func (g *guard) refuse(tk *token.Token) (message, suggestion string) {
	if message, suggestion = refusedSyntax(tk.Type); message != "" {
		return message, suggestion
	}
	switch tk.Type {
	case token.MappingStartType, token.SequenceStartType:
		g.flow, g.entry = append(g.flow, tk.Type == token.MappingStartType), entry{}
	case token.MappingEndType, token.SequenceEndType, token.CollectEntryType:
		g.endEntry(tk.Type)
	case token.MappingValueType:
		g.entry.colon = true
		if len(g.flow) == 0 && tk.Prev != nil && g.siblings(tk.Prev.Position.Column) > maxSiblings {
			return fmt.Sprintf("more than %d keys in one mapping", maxSiblings), fmt.Sprintf("a plan file holds at most %d plans", maxPlans)
		}
	case token.CommentType:
	default:
		g.entry.key, g.entry.value = true, g.entry.colon
	}
	switch tk.Type {
	case token.SequenceEntryType:
		if tk.Position.Line == g.dashLine {
			return "a list directly inside a list", "no key of a plan file takes one"
		}
		g.dashLine = tk.Position.Line
	case token.DocumentHeaderType:
		if g.documents++; g.documents > 1 || g.content {
			return "a second YAML document begins here", "keep one document per plan file"
		}
	}
	g.content = g.content || tk.Type != token.CommentType && tk.Type != token.DocumentHeaderType && tk.Type != token.DocumentEndType
	switch {
	case len(g.flow) > maxDepth || len(g.columns) > maxDepth:
		return fmt.Sprintf("nested deeper than %d levels", maxDepth), "a plan file needs 7"
	case g.bare > maxBare:
		return fmt.Sprintf("more than %d keys without a value", maxBare), "write key: value"
	}
	return "", ""
}

// endEntry handles a comma or a closing bracket.
func (g *guard) endEntry(t token.Type) {
	inMapping := len(g.flow) > 0 && g.flow[len(g.flow)-1]
	if inMapping && (g.entry.key || g.entry.colon) && !g.entry.value {
		g.bare++
	}
	g.entry = entry{}
	if t != token.CollectEntryType && len(g.flow) > 0 {
		g.flow = g.flow[:len(g.flow)-1]
		g.entry = entry{key: true, colon: true, value: true} // what just closed was a value
	}
}

// siblings counts the keys of the block mapping that has its keys in this column.
func (g *guard) siblings(column int) int {
	last := len(g.columns) - 1
	for last >= 0 && g.columns[last].column > column {
		last--
	}
	g.columns = g.columns[:last+1]
	if last < 0 || g.columns[last].column < column {
		g.columns = append(g.columns, siblings{column: column})
		last++
	}
	g.columns[last].count++
	return g.columns[last].count
}

func refusedSyntax(t token.Type) (message, suggestion string) {
	switch t {
	case token.AnchorType, token.AliasType:
		return "anchors (&) and aliases (*) are not allowed in a plan file", "write the value out, or put it in quotes"
	case token.MergeKeyType:
		return "merge keys (<<) are not allowed in a plan file", "write the keys out"
	case token.TagType:
		return "tags (!) are not allowed in a plan file", "delete the tag, or put the value in quotes"
	case token.DirectiveType:
		return "directives (%) are not allowed in a plan file", "delete the line"
	case token.LiteralType, token.FoldedType:
		return "block text (| and >) is not allowed in a plan file", "write the text on one line, in quotes"
	case token.MappingKeyType:
		return `the form "? key" is not allowed in a plan file`, "write key: value"
	}
	return "", ""
}
