package licences_test

import (
	"regexp"
	"strings"
)

// licence is what a text says.
type licence struct {
	name    string
	class   class
	phrases []string // all of them are in the text
}

type class int

const (
	permissive class = iota
	weak             // copyleft that ends at its own files
	strong           // copyleft
)

// licences are looked for in this order: a text that names another one ("is not the GPL") is told by the longer one.
var licences = []licence{
	{"AGPL-3.0", strong, []string{"gnu affero general public license version 3"}},
	{"LGPL", strong, []string{"gnu lesser general public license version"}},
	{"GPL-3.0", strong, []string{"gnu general public license version 3, 29 june 2007"}},
	{"GPL-2.0", strong, []string{"gnu general public license version 2, june 1991"}},
	{"MPL-2.0", weak, []string{"mozilla public license", "2.0", "covered software"}},
	{"Apache-2.0", permissive, []string{"apache license", "version 2.0, january 2004", "grant of patent license"}},
	{"Apache-2.0", permissive, []string{"licensed under the apache license, version 2.0"}},
	{"BSD-3-Clause", permissive, []string{"redistribution and use in source and binary forms", "neither the name"}},
	{"BSD-3-Clause", permissive, []string{"redistribution and use in source and binary forms", "may not be used to endorse or promote products"}},
	{"BSD-2-Clause", permissive, []string{"redistribution and use in source and binary forms"}},
	{"MIT-0", permissive, []string{"mit no attribution", "permission is hereby granted, free of charge"}},
	{"MIT", permissive, []string{"permission is hereby granted, free of charge, to any person obtaining a copy", "the above copyright notice and this permission notice"}},
	{"ISC", permissive, []string{"permission to use, copy, modify, and/or distribute this software for any purpose with or without fee"}},
	{"ISC", permissive, []string{"permission to use, copy, modify, and distribute this software for any purpose with or without fee"}},
	{"Unlicense", permissive, []string{"this is free and unencumbered software released into the public domain"}},
	{"CC0-1.0", permissive, []string{"cc0 1.0 universal"}},
	{"Zlib", permissive, []string{"this software is provided 'as-is', without any express or implied warranty", "altered source versions must be plainly marked"}},
}

var space = regexp.MustCompile(`[\s*#>]+`)

// classify names every licence of a text: a file may hold several, one for each part of a module.
func classify(text string) []licence {
	text = strings.ToLower(strings.NewReplacer("“", `"`, "”", `"`, "’", "'", "(c)", "").Replace(text))
	text = space.ReplaceAllString(text, " ")
	var found []licence
	bsd := false
	for _, l := range licences {
		all := true
		for _, p := range l.phrases {
			all = all && strings.Contains(text, p)
		}
		if !all || bsd && strings.HasPrefix(l.name, "BSD") || has(found, l.name) {
			continue
		}
		bsd = bsd || strings.HasPrefix(l.name, "BSD")
		found = append(found, l)
	}
	return found
}

func has(all []licence, name string) bool {
	for _, l := range all {
		if l.name == name {
			return true
		}
	}
	return false
}
