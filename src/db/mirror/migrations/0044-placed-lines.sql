-- Which SKU and product of the catalogue a line is, and how that was found: by its id ('external_id') or, as of a line with
-- modifiers, which carries none, by the product's name ('name'). NULL: not known, or it may be any of several.
ALTER TABLE order_items ADD COLUMN sku TEXT;
ALTER TABLE order_items ADD COLUMN product_id TEXT;
ALTER TABLE order_items ADD COLUMN matched_by TEXT;
-- Through what the order was placed: the last part of `name`, such as 'Web'.
ALTER TABLE orders ADD COLUMN channel TEXT;
UPDATE orders SET channel = (SELECT replace(x, rtrim(x, replace(x, char(1), '')), '')
    FROM (SELECT replace(name, ' - ', char(1)) AS x))
  WHERE name LIKE '#% - % - % - _%';
