<?php
// php post-stock.php URL EXTERNAL_ID=QTY@BRANCH …: counts by HTTP, with an answer for each.
// TILL_KEY: the key, which the group of storage.group reads in /var/lib/tillsync/api-key.
[, $url] = $argv;
$items = [];
foreach (array_slice($argv, 2) as $word) {
    [$externalId, $qty, $branch] = preg_split('/[=@]/', $word);
    $items[] = ['externalId' => $externalId, 'qty' => (float) $qty, 'subsidiaryExternalId' => $branch];
}
$answer = @file_get_contents("$url/v1/stock", false, stream_context_create(['http' => [
    'method' => 'POST',
    'header' => ['Content-Type: application/json', 'X-Api-Key: ' . getenv('TILL_KEY')],
    'content' => json_encode($items),
    'timeout' => 30,
    'ignore_errors' => true,                             // The body of a 4xx says what is wrong.
]]));
$body = $answer === false ? null : json_decode($answer, true);
if (!isset($body['results'])) {                          // Send it again: counts are absolute, twice does no harm.
    fwrite(STDERR, 'Nothing was taken: ' . ($body['error']['message'] ?? 'tillsync does not answer.') . "\n");
    exit(1);
}
foreach ($body['results'] as $result) {
    echo $items[$result['index']]['externalId'], ' ', $result['state'], ' ', $result['message'] ?? '', "\n";
}
exit($body['rejected'] > 0 ? 3 : 0);
