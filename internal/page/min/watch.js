setTimeout(function(){window.vestibule||location.reload()},2e4);
