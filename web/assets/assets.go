// Package assets holds the style and the icon that all pages share.
package assets

import "embed"

// Files are the assets by file name.
//
//go:embed weir.css icon.svg
var Files embed.FS
