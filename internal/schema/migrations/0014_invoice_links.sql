-- Where customers look at an invoice that was finalized, as it was read.
ALTER TABLE weir.invoices ADD COLUMN hosted_url text CHECK (octet_length(hosted_url) <= 2000);
