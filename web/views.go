package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strconv"
)

//go:embed templates/*.html assets/*
var files embed.FS

// views are the parsed templates, and the assets under names that change with their content.
type views struct {
	templates *template.Template
	assets    assetNames
	byName    map[string]asset
}

type assetNames struct{ Style, Script, Icon string }

type asset struct {
	kind  string
	bytes []byte
}

func newViews() (*views, error) {
	v := &views{byName: map[string]asset{}}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	for file, to := range map[string]*string{"weir.css": &v.assets.Style, "live.js": &v.assets.Script, "icon.svg": &v.assets.Icon} {
		b, err := files.ReadFile("assets/" + file)
		if err != nil {
			return nil, fmt.Errorf("read asset %s: %w", file, err)
		}
		sum := sha256.Sum256(b)
		ext := path.Ext(file)
		name := file[:len(file)-len(ext)] + "-" + hex.EncodeToString(sum[:6]) + ext
		v.byName[name] = asset{kinds[ext], b}
		*to = "/usage-assets/" + name
	}
	var err error
	v.templates, err = template.New("").Option("missingkey=error").ParseFS(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("read the templates: %w", err)
	}
	return v, nil
}

// render writes a page. It is made in full first: an error leaves no half page behind.
func (p *Pages) render(w http.ResponseWriter, status int, name string, data any) {
	var b bytes.Buffer
	if err := p.views.templates.ExecuteTemplate(&b, name, data); err != nil {
		p.log.Error("a page's template failed", "template", name, "error", err)
		http.Error(w, "This page can't be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the reader has gone: nobody is left to tell
}

// asset serves style and script, which never change under their name.
func (p *Pages) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := p.views.byName[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.bytes) // as above
}
