package plans

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// node is what a plan file needs of YAML: mappings, lists and scalars with their places. Scalars
// keep their text, so that numbers are read by this package's rules and never pass a float.
type node struct {
	kind   nodeKind
	at     place
	text   string // of a scalar
	quoted bool   // a scalar in quotes is text, never a number or a word
	items  []*node
	fields []field
}

type nodeKind int

const (
	kindScalar nodeKind = iota
	kindNull
	kindList
	kindMapping
)

func (k nodeKind) String() string {
	return [...]string{"a single value", "nothing", "a list", "a mapping"}[k]
}

type field struct {
	key   string
	at    place
	value *node
}

type place struct{ line, column int }

// parseTree reads one YAML document, or adds one problem and returns nil.
func parseTree(data []byte, ps *problems) *node {
	src, p := sourceText(data)
	if p == nil {
		var tokens token.Tokens
		if tokens, p = tokenize(src); p == nil {
			var root *node
			if root, p = parseTokens(tokens); p == nil {
				return root
			}
		}
	}
	ps.add(*p)
	return nil
}

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
		case r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff'):
			return "", &Problem{
				Line: line, Column: column,
				Message:    fmt.Sprintf("the control character %U is not allowed in a plan file", r),
				Suggestion: "delete it",
			}
		}
		column++
	}
	return src, nil
}

// tokenize refuses, before anything recursive runs, what a plan file never needs.
func tokenize(src string) (token.Tokens, *Problem) {
	tokens := lexer.Tokenize(src)
	depth, documents, content := 0, 0, false
	dashLine := 0
	for _, tk := range tokens {
		message, suggestion := refusedSyntax(tk)
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType:
			if tk.Position.Line == dashLine {
				message, suggestion = "a list directly inside a list", "no key of a plan file takes one"
			}
			dashLine = tk.Position.Line
		case token.DocumentHeaderType:
			if documents++; documents > 1 || content {
				message, suggestion = "a second YAML document begins here", "keep one document per plan file"
			}
		}
		if depth > maxDepth || tk.Position.IndentLevel > maxDepth {
			message, suggestion = fmt.Sprintf("nested deeper than %d levels", maxDepth), "a plan file needs 7"
		}
		if message != "" {
			return nil, &Problem{Line: tk.Position.Line, Column: tk.Position.Column, Message: message, Suggestion: suggestion}
		}
		content = content || tk.Type != token.CommentType && tk.Type != token.DocumentHeaderType
	}
	if !content {
		return nil, &Problem{Message: "the file is empty", Suggestion: "begin with currency, default_plan, features and plans"}
	}
	return tokens, nil
}

func refusedSyntax(tk *token.Token) (message, suggestion string) {
	switch tk.Type {
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
		return "the form \"? key\" is not allowed in a plan file", "write key: value"
	}
	return "", ""
}

// parseTokens runs the YAML library and turns its tree into nodes.
func parseTokens(tokens token.Tokens) (*node, *Problem) {
	// Duplicate keys are found later, together with everything else that is wrong.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxProblem(err)
	}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			return convert(doc.Body, place{1, 1}, 0)
		}
	}
	return nil, &Problem{Message: "the file is empty", Suggestion: "begin with currency, default_plan, features and plans"}
}

func syntaxProblem(err error) *Problem {
	p := &Problem{Message: "this is not valid YAML", Suggestion: "check the indentation, colons and brackets here"}
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) {
		p.Message += ": " + printable(syntax.Message)
		if syntax.Token != nil && syntax.Token.Position != nil {
			p.Line, p.Column = syntax.Token.Position.Line, syntax.Token.Position.Column
		}
	}
	return p
}

// convert turns the library's tree into nodes; outer is the place of the key that holds n.
func convert(n ast.Node, outer place, depth int) (*node, *Problem) {
	if n == nil {
		return &node{kind: kindNull, at: outer}, nil
	}
	at := placeOf(n.GetToken(), outer)
	if depth > maxDepth {
		return nil, &Problem{Line: at.line, Column: at.column, Message: fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	switch v := n.(type) {
	case *ast.MappingNode:
		return convertMapping(v, at, depth)
	case *ast.SequenceNode:
		out := &node{kind: kindList, at: at}
		for _, value := range v.Values {
			item, p := convert(value, at, depth+1)
			if p != nil {
				return nil, p
			}
			out.items = append(out.items, item)
		}
		return out, nil
	case *ast.NullNode:
		return &node{kind: kindNull, at: outer}, nil
	case *ast.StringNode:
		quoted := v.Token.Type == token.SingleQuoteType || v.Token.Type == token.DoubleQuoteType
		return &node{kind: kindScalar, at: at, text: v.Value, quoted: quoted}, nil
	case ast.ScalarNode:
		return &node{kind: kindScalar, at: at, text: strings.TrimSpace(v.GetToken().Value)}, nil
	}
	return nil, &Problem{Line: at.line, Column: at.column, Message: "this form of YAML is not allowed in a plan file"}
}

func convertMapping(m *ast.MappingNode, at place, depth int) (*node, *Problem) {
	out := &node{kind: kindMapping, at: at}
	for i, entry := range m.Values {
		keyAt := placeOf(entry.Key.GetToken(), at)
		if i == 0 && !m.IsFlowStyle {
			out.at = keyAt // the library's place of a block mapping is its first colon
		}
		key, ok := entry.Key.(ast.ScalarNode)
		if !ok {
			return nil, &Problem{Line: keyAt.line, Column: keyAt.column, Message: "this key is not a plain word", Suggestion: "write key: value"}
		}
		text := key.GetToken().Value
		if s, ok := key.(*ast.StringNode); ok {
			text = s.Value
		}
		value, p := convert(entry.Value, keyAt, depth+1)
		if p != nil {
			return nil, p
		}
		out.fields = append(out.fields, field{key: text, at: keyAt, value: value})
	}
	return out, nil
}

func placeOf(tk *token.Token, outer place) place {
	if tk == nil || tk.Position == nil || tk.Position.Line < 1 {
		return outer
	}
	return place{line: tk.Position.Line, column: max(tk.Position.Column, 1)}
}
