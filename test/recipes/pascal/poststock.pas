// poststock URL EXTERNAL_ID=QTY@BRANCH …: counts by HTTP, with an answer for each.
// TILL_KEY: the key, which the group of storage.group reads in /var/lib/tillsync/api-key.
// fpc poststock.pas
program poststock;
{$mode objfpc}{$H+}
uses SysUtils, Classes, fphttpclient, fpjson, jsonparser;

var
  Counts: TJSONArray;
  Answer: TJSONObject;
  Client: TFPHTTPClient;
  Received: TStringStream;
  Part: TStringArray;
  I: Integer;
  Row: TJSONEnum;
begin
  Counts := TJSONArray.Create;
  DefaultFormatSettings.DecimalSeparator := '.';
  for I := 2 to ParamCount do
  begin
    Part := ParamStr(I).Split(['=', '@']);
    Counts.Add(TJSONObject.Create(['externalId', Part[0], 'qty', StrToFloat(Part[1]), 'subsidiaryExternalId', Part[2]]));
  end;
  Client := TFPHTTPClient.Create(nil);
  Client.IOTimeout := 30000;
  Client.AddHeader('Content-Type', 'application/json');
  Client.AddHeader('X-Api-Key', GetEnvironmentVariable('TILL_KEY'));
  Client.RequestBody := TStringStream.Create(Counts.AsJSON);
  Received := TStringStream.Create('');
  try
    Client.HTTPMethod('POST', ParamStr(1) + '/v1/stock', Received, []);   // []: the body of a 4xx says what is wrong.
    Answer := GetJSON(Received.DataString) as TJSONObject;
    if Answer.Find('results') = nil then raise Exception.Create(Answer.FindPath('error.message').AsString);
  except
    on Error: Exception do                               // Send it again: counts are absolute, twice does no harm.
    begin
      WriteLn(StdErr, 'Nothing was taken: ', Error.Message);
      Halt(1);
    end;
  end;
  for Row in Answer.Arrays['results'] do
    with Row.Value as TJSONObject do
      WriteLn(Counts.Objects[Integers['index']].Strings['externalId'], ' ', Strings['state'], ' ', Get('message', ''));
  if Answer.Integers['rejected'] > 0 then Halt(3);
end.
