package stripesim

import (
	"net/http"
)

func (s *Server) route() {
	for pattern, h := range map[string]handler{
		"GET /v1/account": s.getAccount,

		"POST /v1/customers": s.createCustomer, "GET /v1/customers": s.listCustomers,
		"GET /v1/customers/{id}": s.getCustomer, "POST /v1/customers/{id}": s.updateCustomer, "DELETE /v1/customers/{id}": s.deleteCustomer,

		"POST /v1/products": s.createProduct, "GET /v1/products": s.listProducts,
		"GET /v1/products/{id}": s.getProduct, "POST /v1/products/{id}": s.updateProduct, "DELETE /v1/products/{id}": s.deleteProduct,

		"POST /v1/prices": s.createPrice, "GET /v1/prices": s.listPrices,
		"GET /v1/prices/{id}": s.getPrice, "POST /v1/prices/{id}": s.updatePrice,

		"POST /v1/billing/meters": s.createMeter, "GET /v1/billing/meters": s.listMeters,
		"GET /v1/billing/meters/{id}": s.getMeter, "POST /v1/billing/meters/{id}": s.updateMeter,
		"POST /v1/billing/meters/{id}/deactivate": s.deactivateMeter, "POST /v1/billing/meters/{id}/reactivate": s.reactivateMeter,
		"GET /v1/billing/meters/{id}/event_summaries": s.listSummaries,
		meterEventRoute: s.createMeterEvent, "POST /v1/billing/meter_event_adjustments": s.createAdjustment,

		"POST /v1/subscriptions": s.createSubscription, "GET /v1/subscriptions": s.listSubscriptions,
		"GET /v1/subscriptions/{id}": s.getSubscription, "POST /v1/subscriptions/{id}": s.updateSubscription,
		"DELETE /v1/subscriptions/{id}": s.cancelSubscription, "POST /v1/subscriptions/{id}/resume": s.resumeSubscription,
		"POST /v1/subscriptions/{id}/migrate": s.migrateSubscription,
		"POST /v1/subscription_items":         s.createItem, "GET /v1/subscription_items": s.listItems,
		"GET /v1/subscription_items/{id}": s.getItem, "POST /v1/subscription_items/{id}": s.updateItem,
		"DELETE /v1/subscription_items/{id}": s.deleteItem,

		"POST /v1/invoices": s.createInvoice, "GET /v1/invoices": s.listInvoices,
		"GET /v1/invoices/{id}": s.getInvoice, "POST /v1/invoices/{id}": s.updateInvoice, "DELETE /v1/invoices/{id}": s.deleteInvoice,
		"GET /v1/invoices/{id}/lines": s.listInvoiceLines, "POST /v1/invoices/{id}/finalize": s.finalizeInvoice,
		"POST /v1/invoices/{id}/pay": s.payInvoice, "POST /v1/invoices/{id}/void": s.voidInvoice,
		"POST /v1/invoices/{id}/mark_uncollectible": s.writeOffInvoice,

		"POST /v1/invoiceitems": s.createInvoiceItem, "GET /v1/invoiceitems": s.listInvoiceItems,
		"GET /v1/invoiceitems/{id}": s.getInvoiceItem, "DELETE /v1/invoiceitems/{id}": s.deleteInvoiceItem,

		"POST /v1/credit_notes": s.createCreditNote, "GET /v1/credit_notes": s.listCreditNotes, "GET /v1/credit_notes/preview": s.previewCreditNote,
		"GET /v1/credit_notes/{id}": s.getCreditNote, "GET /v1/credit_notes/{id}/lines": s.listCreditLines,

		"GET /v1/events": s.listEvents, "GET /v1/events/{id}": s.getEvent, "GET /v2/core/events/{id}": s.getThinEvent,
		"GET /v1/checkout/sessions/{id}": s.getCheckout,

		"POST /v1/webhook_endpoints": s.createEndpoint, "GET /v1/webhook_endpoints": s.listEndpoints,
		"GET /v1/webhook_endpoints/{id}": s.getEndpoint, "POST /v1/webhook_endpoints/{id}": s.updateEndpoint,
		"DELETE /v1/webhook_endpoints/{id}": s.deleteEndpoint,
		"/":                                 unknownURL,
	} {
		s.endpoint(pattern, h)
	}
}

func unknownURL(c *call) (object, error) {
	e := invalid("Unrecognized request URL (%s: %s). If you are trying to list objects, remove the trailing slash.", c.request.Method, c.request.URL.Path)
	e.status = http.StatusNotFound
	return nil, e
}

func (s *Server) getAccount(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	return object{
		"id": s.account, "object": "account", "business_type": nil, "charges_enabled": true, "country": "US",
		"default_currency": "usd", "details_submitted": true, "email": "owner@example.com", "payouts_enabled": true, "type": "standard",
		"settings": object{"dashboard": object{"display_name": "Simulator", "timezone": "Etc/UTC"}},
	}, nil
}
