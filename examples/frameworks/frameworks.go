// Package frameworks puts the middleware around handlers of chi, echo and gin. It is a module of its own, so that the
// frameworks stay out of the product's.
package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/weirhq/weir/enforcer"
)

// Wrapper is what Enforcer.Middleware returns.
type Wrapper = func(http.Handler) http.Handler

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }

func words(w http.ResponseWriter, r *http.Request) {
	enforcer.ReportUnits(r.Context(), 3)
	hello(w, r)
}

// Chi takes net/http middleware as it is.
func Chi(weir Wrapper) http.Handler {
	r := chi.NewRouter()
	r.Get("/free", hello)
	r.With(weir).Get("/hello", hello)
	r.With(weir).Get("/words", words)
	return r
}

// Echo wraps it.
func Echo(weir Wrapper) http.Handler {
	e := echo.New()
	e.GET("/free", echo.WrapHandler(http.HandlerFunc(hello)))
	g := e.Group("", echo.WrapMiddleware(weir))
	g.GET("/hello", echo.WrapHandler(http.HandlerFunc(hello)))
	g.GET("/words", func(c echo.Context) error {
		enforcer.ReportUnits(c.Request().Context(), 3)
		return c.String(http.StatusOK, "hello")
	})
	return e
}

// Gin has writers of its own, so that the middleware stands around a group's handlers by an adapter. With GiveBack,
// put it around the whole engine instead, weir(engine): in here it does not see the status.
func Gin(weir Wrapper) http.Handler {
	e := gin.New()
	e.GET("/free", gin.WrapF(hello))
	g := e.Group("", ginMiddleware(weir))
	g.GET("/hello", gin.WrapF(hello))
	g.GET("/words", func(c *gin.Context) {
		enforcer.ReportUnits(c.Request.Context(), 3)
		c.String(http.StatusOK, "hello")
	})
	return e
}

func ginMiddleware(weir Wrapper) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		weir(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}
