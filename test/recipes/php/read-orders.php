<?php
// php read-orders.php MIRROR_DB SEQ_FILE: every new event with its order and items. Run it every few seconds.
[, $mirror, $seqFile] = $argv;
$after = (int) @file_get_contents($seqFile);

$db = new SQLite3($mirror, SQLITE3_OPEN_READONLY);
$db->enableExceptions(true);
$db->busyTimeout(5000);
$items = $db->prepare('SELECT product_external_id, product_name, quantity, product_price
                         FROM order_items WHERE order_id = :id ORDER BY line');
$db->exec('BEGIN');                                      // Order and items of the same moment.
$rows = $db->query("SELECT e.seq, o.order_id, o.code, o.status, o.amount_to_pay
                      FROM order_events e JOIN orders o USING (order_id)
                     WHERE e.seq > $after ORDER BY e.seq LIMIT 100");
$orders = [];
while ($order = $rows->fetchArray(SQLITE3_ASSOC)) {
    $items->bindValue(':id', $order['order_id']);
    for ($lines = $items->execute(); $line = $lines->fetchArray(SQLITE3_ASSOC);) $order['items'][] = $line;
    $orders[] = $order;
}
$db->exec('ROLLBACK');
$db->close();                                            // No lock is held while the POS works.

foreach ($orders as $order) {
    echo json_encode($order, JSON_UNESCAPED_UNICODE), "\n";   // Book it here; it may come twice after a crash.
    file_put_contents("$seqFile.new", $order['seq']);
    rename("$seqFile.new", $seqFile);
}
